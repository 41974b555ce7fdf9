"""How well the speeds that ship with the package match the measurements, and how their constants were found."""
