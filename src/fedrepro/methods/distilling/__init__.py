"""What methods share that distil an ensemble of clients' models into the server's."""
