"""A run's folder, read for people: its page, its card, and several runs beside each other. torch is not needed."""
