"""The reference pages of the user guide, made from the programs themselves; a test holds the two together."""
