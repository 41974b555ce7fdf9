"""Generated from fleet.proto by `make proto`; the only place in this package that imports grpc."""
