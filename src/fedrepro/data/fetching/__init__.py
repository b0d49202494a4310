"""Get raw files from archives, packages or the network; verify and unpack them."""
