"""The report's pictures, one file each; every title states what the figures say, good or bad."""
