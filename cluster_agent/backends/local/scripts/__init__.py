"""Jobs without parameter servers: scripts of a fixed size, and workers that exchange gradients directly."""
