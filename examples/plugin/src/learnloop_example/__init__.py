"""A worked example of a plug-in of learnloop."""
