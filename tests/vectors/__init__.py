"""The recorded and generated vectors of the upstream peers, run through the product."""
