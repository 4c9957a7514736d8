"""Handlers of TorchScript's nodes, a file a theme; `handlers.FILES` lists them."""
