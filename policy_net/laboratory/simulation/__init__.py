"""The simulated cluster: the truth that policies are trained and tested on."""
