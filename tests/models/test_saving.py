"""Are the same weights always the same bytes, which every reader of safetensors takes?"""

import random

import safetensors
import safetensors.torch
import torch
from torch import nn

from logo_ssl.models.saving import plain_weights, weight_bytes


def test_the_same_weights_are_the_same_bytes_in_whatever_order_they_tell_of_themselves():
    weights = plain_weights(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)).state_dict())
    told = [(f"key{i}", f'"é\n{i}') for i in range(20)]
    contents = {weight_bytes(weights, dict(random.Random(seed).sample(told, len(told)))) for seed in range(5)}
    assert len(contents) == 1


def test_the_file_is_what_the_library_reads(tmp_path):
    weights = plain_weights(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)).state_dict())
    file = tmp_path / "w.safetensors"
    file.write_bytes(weight_bytes(weights, {"b": "ü", "a": "1"}))
    read = safetensors.torch.load_file(file)
    assert read.keys() == weights.keys()
    assert all(torch.equal(read[name], value) for name, value in weights.items())
    with safetensors.safe_open(file, framework="pt") as opened:
        assert opened.metadata() == {"a": "1", "b": "ü"}
