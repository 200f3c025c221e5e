"""What a pretrained encoder is used for: loading it elsewhere, features of images, search, export."""
