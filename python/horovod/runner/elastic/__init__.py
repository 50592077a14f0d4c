"""What the ranks of an elastic job and its launcher tell each other."""
