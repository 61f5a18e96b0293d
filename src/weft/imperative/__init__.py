"""Arrays and what happens to them at once: Tensor, making them, saving them."""
