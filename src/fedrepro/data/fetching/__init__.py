"""Raw files: from archives, packages or the network, checked and unpacked."""
