"""The places where code runs: process, event loop, threads, and the functions of a program."""
