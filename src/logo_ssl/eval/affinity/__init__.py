"""What has the regressor learned? Its affinity between crops, beside their cosine similarity."""

from .company import Company, Member, company_of
from .measures import MEASURES, Measures, Seen, load_measures, measures_of, normalised
from .pool import Pool, Reference, gather, reference_by_hand
from .ranking import compare
from .windows import slide

__all__ = [
    "MEASURES",
    "Company",
    "Measures",
    "Member",
    "Pool",
    "Reference",
    "Seen",
    "company_of",
    "compare",
    "gather",
    "load_measures",
    "measures_of",
    "normalised",
    "reference_by_hand",
    "slide",
]
