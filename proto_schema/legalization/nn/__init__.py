"""Forms of layers, of images and of their regions."""
