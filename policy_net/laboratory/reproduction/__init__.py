"""Reproduction of a paper's figures: experiments that are data, one runner, and what came of it beside the paper's."""
