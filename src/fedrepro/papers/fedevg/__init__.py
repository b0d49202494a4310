"""FedEvg, thesis chapter IV."""
