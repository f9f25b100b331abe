"""Training: a trainer and its configuration for each way, losses, and penalties that are callables."""

from attnfaith.training.penalties import Diversity, ImpermissibleMass, MaskedWords, Penalty, WordTying
from attnfaith.training.rationales import RationaleConfig, RationaleTrainer
from attnfaith.training.trainers import (
    AdversarialConfig,
    AdversarialTrainer,
    AttentionConfig,
    AttentionTrainer,
    DivergedError,
    FineTuningTrainer,
    GuidedTrainer,
)
from attnfaith.training.translation import TranslationConfig, TranslationTrainer


__all__ = [
    "AdversarialConfig",
    "AdversarialTrainer",
    "AttentionConfig",
    "AttentionTrainer",
    "DivergedError",
    "Diversity",
    "FineTuningTrainer",
    "GuidedTrainer",
    "ImpermissibleMass",
    "MaskedWords",
    "Penalty",
    "RationaleConfig",
    "RationaleTrainer",
    "TranslationConfig",
    "TranslationTrainer",
    "WordTying",
]
