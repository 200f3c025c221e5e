"""How good is an encoder? Each evaluation yields (metric, value) and writes what the report shows."""

from .beside_pixels import compare_knn
from .cache import features_of, labelled_features
from .encoders import FrozenEncoder, load_encoder
from .finetune import finetune as evaluate_finetune
from .how import Extraction
from .knn import knn as evaluate_knn
from .labelled import LabelledSplits, labelled
from .linear import linear as evaluate_linear
from .record import data_for, save
from .transfer import SetFigure
from .transfer import transfer as evaluate_transfer

__all__ = [
    "Extraction",
    "FrozenEncoder",
    "LabelledSplits",
    "SetFigure",
    "compare_knn",
    "data_for",
    "evaluate_finetune",
    "evaluate_knn",
    "evaluate_linear",
    "evaluate_transfer",
    "features_of",
    "labelled",
    "labelled_features",
    "load_encoder",
    "save",
]
