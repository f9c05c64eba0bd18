"""Vectors on disk: Arrow, Parquet, HDF5 and npz files, written by runs that can be resumed."""
