"""Settings of tiny trainings, which tests change one by one."""


def settings(folder) -> dict:
    """Arguments of a training of one quiet epoch on tiny texts, whose checkpoints would lie in the folder."""
    return {
        "output_dir": str(folder / "checkpoints"),
        "seed": 0,
        "num_train_epochs": 1,
        "per_device_train_batch_size": 32,
        "learning_rate": 1e-2,
        "weight_decay": 0.0,
        "max_grad_norm": 0.0,
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
        "remove_unused_columns": False,
        "length_column_name": "length",
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
        "logging_strategy": "epoch",
        "report_to": "none",
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
        "save_strategy": "no",
    }
