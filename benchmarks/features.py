"""What does an encoder see in a data set? Features and labels of its training images, as an .npz file for probes.py.

For example: features.py torchvision/resnet50 --data oxfordiiitpet --out pets.npz
"""

import argparse

import numpy as np

from logo_ssl.eval.encoder import load_encoder
from logo_ssl.eval.features import Extraction, labelled_features
from logo_ssl.eval.protocol import data_for
from logo_ssl.eval.splits import labelled_splits


def main(line=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", help="as for `logo-ssl eval`")
    parser.add_argument("--data", help="as for `logo-ssl eval`")
    parser.add_argument("--size", type=int, help="side of the images in pixels")
    parser.add_argument("--test", action="store_true", help="the test images, not the training images")
    parser.add_argument("--out", required=True, help="the .npz file to write")
    arguments = parser.parse_args(line)
    encoder = load_encoder(arguments.encoder, size=arguments.size)
    train, test = labelled_splits(data_for(encoder, arguments.data))
    split = test if arguments.test else train
    if split is None:
        parser.error(f"{arguments.data} has no labelled test images; leave --test out.")
    features, labels = labelled_features(encoder, split, Extraction(say=print))
    np.savez(arguments.out, features=features.numpy(), labels=labels.numpy())
    print(f"{arguments.out}: {len(labels):,} images, {features.shape[1]:,} features, {int(labels.max()) + 1} classes.")


if __name__ == "__main__":
    main()
