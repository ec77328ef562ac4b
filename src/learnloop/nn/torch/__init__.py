"""Any torch module as a network. Its modules are imported by name only, since they load torch."""
