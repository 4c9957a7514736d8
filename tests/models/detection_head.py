"""The end of a detector, where the number of boxes depends on the data: a threshold, masks, top-k, suppression."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DetectionHead(nn.Module):
    """Boxes [n, 4] as x1, y1, x2, y2 and logits [n, classes + 1] (0: nothing) -> boxes, labels and scores that stay."""

    def __init__(self, least: float = 0.4, most: int = 6, overlap: float = 0.5, size: float = 20.0) -> None:
        super().__init__()
        self.least = least
        self.most = most
        self.overlap = overlap
        self.size = size

    def forward(self, boxes: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores, labels = logits.softmax(1)[:, 1:].max(1)
        labels = labels + 1
        chosen = torch.nonzero(scores > self.least)[:, 0]
        boxes, scores, labels = boxes[chosen].clamp(0.0, self.size), scores[chosen], labels[chosen]
        large = (boxes[:, 2:] - boxes[:, :2]).min(1)[0] >= 1.0
        boxes, scores, labels = boxes[large], scores[large], labels[large]
        # fillers make sure that there are enough to choose from
        best, order = torch.cat([scores, scores.new_full((self.most,), -1.0)]).topk(self.most)
        order = order[best > 0]
        boxes, scores, labels = boxes[order], scores[order], labels[order]
        apart = boxes + labels.to(boxes.dtype)[:, None] * (self.size + 1.0)
        kept = torch.ops.torchvision.nms(apart, scores, self.overlap)
        return boxes[kept], labels[kept], scores[kept]
