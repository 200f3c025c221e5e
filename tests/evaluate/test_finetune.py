"""Does fine-tuning learn from labels, from any share of them, and leave the encoder alone?"""

import json

import pytest
import torch
from test_linear import colours

from logo_ssl.data import ImageSet
from logo_ssl.errors import UserError
from logo_ssl.evaluate import Extraction
from logo_ssl.evaluate.encoders import load_encoder
from logo_ssl.evaluate.finetune import finetune

QUIET = Extraction(device="cpu", workers=0, cache=False)


def test_labels_are_learned_from_any_share_and_the_encoder_stays(tmp_path):
    encoder = load_encoder("random/tiny", size=16)
    before = {name: value.clone() for name, value in encoder.backbone.state_dict().items()}
    data = ImageSet("colours", colours(60, 0), colours(30, 1))
    out = tmp_path / "finetune.json"
    figures = dict(finetune(encoder, data, QUIET, fractions=(0.2, 1.0), epochs=12, out=out))
    assert figures["finetune top-1, 100 % of labels"] > 80
    assert next(iter(figures)) == "finetune top-1, 20 % of labels"
    assert all(torch.equal(value, before[name]) for name, value in encoder.backbone.state_dict().items())
    record = json.loads(out.read_text())
    assert [row["images"] for row in record["results"]] == [12, 60]
    assert {"protocol", "commit", "hardware", "fingerprint"} <= record.keys()


def test_settings_that_make_no_sense_are_refused():
    encoder, data = load_encoder("random/tiny", size=16), ImageSet("colours", colours(30, 0))
    with pytest.raises(UserError, match="epochs is 0"):
        list(finetune(encoder, data, QUIET, epochs=0))
    with pytest.raises(UserError, match="fraction=2"):
        list(finetune(encoder, data, QUIET, fractions=(2.0,)))
