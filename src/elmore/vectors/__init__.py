"""Vectors on disk: Parquet, HDF5 and npz, written so that a killed run can go on."""
