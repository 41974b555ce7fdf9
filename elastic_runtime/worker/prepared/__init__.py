"""A script's own loop, prepared: its model, optimizer and loader stay its own, and several workers train as one."""
