"""How good is an encoder? Each evaluation yields (metric, value) and writes what the report shows."""

from .cache import features_of, labelled_features
from .encoders import FrozenEncoder, load_encoder
from .extraction import Extraction
from .knn import evaluate_knn
from .labelled import Labelled, labelled
from .record import data_for, save

__all__ = [
    "Extraction",
    "FrozenEncoder",
    "Labelled",
    "data_for",
    "evaluate_knn",
    "features_of",
    "labelled",
    "labelled_features",
    "load_encoder",
    "save",
]
