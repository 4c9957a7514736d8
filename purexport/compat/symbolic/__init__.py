"""Symbolic functions as in torch.onnx: `symbolic(g, x, alpha)` gives `g.op("Foo", x, alpha_f=alpha)`."""
