"""Does benchmarks/features.py write real features as benchmarks/probes.py reads them?"""

import runpy
from pathlib import Path

import numpy as np

from logo_ssl.data import load_data
from logo_ssl.eval import features_of, load_encoder

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "features.py"


def test_features_and_labels_of_real_images_are_written(photos, tmp_path, capsys):
    out = tmp_path / "f.npz"
    main = runpy.run_path(str(BENCHMARK))["main"]
    main(["random/tiny", "--data", str(photos), "--size", "16", "--out", str(out)])
    arrays, split = np.load(out), load_data(str(photos), 16).train
    assert arrays["labels"].tolist() == split.labels.tolist()
    expected = features_of(load_encoder("random/tiny", size=16), split)
    assert np.array_equal(arrays["features"], expected.numpy())
    assert "30 images, 256 features, 3 classes" in capsys.readouterr().out
