"""Code that serves only one paper: a package per paper, which nothing else imports."""
