"""Trainers against a base model: under its attention, or away from it (Wiegreffe & Pinter 2019)."""

from dataclasses import dataclass

from attnfaith.support.errors import AttnfaithError
from attnfaith.training.losses import adversarial_loss, classification_loss
from attnfaith.training.trainers import AttentionConfig, AttentionTrainer


class GuidedTrainer(AttentionTrainer):
    """Train on labels under the attention of a base model, `base_attention` [T] of each instance.

    The model's own alignment is not trained. Raises AttnfaithError in several processes.
    """

    def __init__(self, model, args, **kwargs):
        if args.world_size > 1:
            raise AttnfaithError("a guided model trains in one process: start it without --num_processes")
        super().__init__(model, args, **kwargs)
        self.model.model.alignment.requires_grad_(False)

    def losses(self, model, inputs):
        labels, attention = inputs.pop("labels"), inputs.pop("base_attention")
        inputs.pop("base_probs")
        with self.accelerator.autocast():
            hidden, _, query = self.model.encode(**inputs)
            logits = self.model.decode(hidden, attention, query)
        return classification_loss(logits, labels, self.class_weights), {"logits": logits}


@dataclass
class AdversarialConfig(AttentionConfig):
    """Arguments of `AdversarialTrainer`. weight, divergence: see `adversarial_loss`. frozen: train only the alignment."""

    weight: float = 0.002
    divergence: str = "kl"
    frozen: bool = False


class AdversarialTrainer(AttentionTrainer):
    """Train without labels against a base model, `base_probs` [C] and `base_attention` [T] of each instance.

    Class weights are not used. Evaluations hold, beside the scores of the labels, the mean of the objective.

    Raises AttnfaithError for KL from a base whose attention is 0 on some token.
    """

    config_class = AdversarialConfig
    weighs_classes = False
    score_names = ("objective",)

    def __init__(self, model, args, **kwargs):
        super().__init__(model, args, **kwargs)
        if args.frozen:
            self.model.requires_grad_(False)
            self.model.model.alignment.requires_grad_(True)

    def check(self, model, args, train, validation):
        super().check(model, args, train, validation)
        for split in (train, validation) if args.divergence == "kl" else ():
            sparse = sum(0 in row for row in split["base_attention"])
            if sparse:
                fault = f"the base's attention to a token is exactly 0 in {sparse} of {len(split)} texts"
                raise AttnfaithError(f"{fault}, where KL is infinite: use divergence 'jsd' against a sparse base")

    def losses(self, model, inputs):
        base_probs, base_attention = inputs.pop("base_probs"), inputs.pop("base_attention")
        inputs.pop("labels")
        outputs = model(**inputs)
        how = {"weight": self.args.weight, "divergence": self.args.divergence}
        losses = adversarial_loss(outputs.logits, base_probs, outputs.attention, base_attention, **how)
        return losses, {"logits": outputs.logits, "objective": losses}
