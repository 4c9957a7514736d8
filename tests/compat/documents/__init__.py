"""The code blocks of the documents of torch.onnx, as they stand in them, and what stands in for Caffe2 in them."""
