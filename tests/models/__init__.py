"""Whole networks that the exporter must carry: the 13 torchvision models of the zoo and two written for the tests."""
