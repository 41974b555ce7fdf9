"""Commands with which users submit jobs to an agent, and ask after them."""
