"""The main job on real input: an agent that packs the files of this machine and learns how.

``files`` finds them, ``packing`` packs and measures, ``job`` runs the loop, ``report`` prints it.
"""
