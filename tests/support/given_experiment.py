"""An experiment file whose runs are given what others left (tests/support/pretraining)."""

EXPERIMENT = """\
system: ima
title: Tiny
paper: none
settings:
  maker:
    dataset: mnist5k
    scaling: symmetric
    partition: {scheme: at_server, share: 0.1}
    model: logistic
    rounds: 1
    participation: 1.0
    epochs: 1
    batch_size: 100
    optimizer: {name: adam, lr: 0.01}
  taught:
    extends: maker
    partition: {scheme: iid, clients: 4, server: 0.1}
    optimizer: {name: adam, lr: 0.02}
    inputs:
      unlabelled: server
      maker: {setting: maker, method: maker, seed: 0}
      judges: {setting: judges, method: judges}
  judges:
    extends: taught
    optimizer: {name: adam, lr: 0.03}
methods:
  taught: {server_epochs: 1}
  maker: {critic_steps: 2}
tables:
  table_1:
    title: First
    rows:
      - {label: Tiny, setting: taught}
    columns:
      - {label: FedAvg, method: fedavg}
      - {label: Taught, method: taught}
"""
