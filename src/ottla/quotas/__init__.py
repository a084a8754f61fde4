"""Quotas: rates of producing, fetching, requests, topic changes and connections. Pure: time is an argument."""
