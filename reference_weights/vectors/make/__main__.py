"""Write the golden vectors: ``python reference_weights/vectors/make``; the checks need torch, transformers, mpmath."""

from write import main

if __name__ == "__main__":
    main()
