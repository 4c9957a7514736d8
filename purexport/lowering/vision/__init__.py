"""Rules of torchvision's operators."""
