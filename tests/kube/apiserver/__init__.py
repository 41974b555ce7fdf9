"""An API server for tests, over real HTTP; what it is faithful in is said by the contract suite beside it."""
