"""What ``import fedrepro as fr`` gives: for notebooks and scripts. Nothing below imports it."""
