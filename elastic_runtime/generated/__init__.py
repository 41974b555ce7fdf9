"""Generated from elastic.proto by `make proto`; the only place in this package that imports grpc."""
