"""Parse, one library call, print. Nothing here computes."""
