"""What operators on images compute: resizing, sampling at coordinates, regions and boxes, blocks of pixels."""
